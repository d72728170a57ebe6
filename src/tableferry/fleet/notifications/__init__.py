"""Notifications to owners and users: recorded before they are sent, and never dropped."""
