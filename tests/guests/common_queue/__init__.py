"""Guests and people on one pod: nobody starves, and each gets its share."""
