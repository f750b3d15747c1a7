"""What both halves need of a site: its files, edited so that every change can be undone."""
