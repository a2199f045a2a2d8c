"""The metrics read from reports, and the section files that collect them."""
