"""Who may do what with this broker: its users and policies, the guard of its ports, requests 3001 to 3010."""
