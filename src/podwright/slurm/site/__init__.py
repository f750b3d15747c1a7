"""A site's files, edited so that every change can be undone. Both halves of the project use
them.
"""
