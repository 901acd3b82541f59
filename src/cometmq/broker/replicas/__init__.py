"""A broker among those of its name: roles, registration, tables that follow the master, acting for it."""
