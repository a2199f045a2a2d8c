"""Nothing of the field: errors, units, atomic files, processes, untrusted text."""
