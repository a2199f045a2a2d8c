"""Views and their renderings. `views.py` holds what is shown, formatted once; HTML, terminal text,
Markdown and JSON all render the same view."""
