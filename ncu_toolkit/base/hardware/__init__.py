"""What is known of GPUs without a report: occupancy and its limits."""
