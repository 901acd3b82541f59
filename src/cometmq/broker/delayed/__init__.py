"""Messages for later: delay levels and timers."""
