"""The processes that outlive a launcher, guardian and lease keeper, and the events that they
report.
"""
