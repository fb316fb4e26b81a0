"""Systems on the domains benchmark."""
