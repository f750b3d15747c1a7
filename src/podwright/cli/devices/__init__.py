"""The devices and their users, as gc-info, gc-monitor and `podwright inventory` show them."""
