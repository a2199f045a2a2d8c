"""Which facts a page, a table and a chart show: builders of documents."""
