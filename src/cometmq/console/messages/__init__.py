"""The message browser: what somebody types into the one box, the scan that it means, and messages made readable."""
