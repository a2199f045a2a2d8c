"""All that knows .ncu-rep files: framing, reading, redaction."""
