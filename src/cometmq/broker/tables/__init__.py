"""Tables that the broker keeps in files: topics, groups, and how they are saved and rebuilt."""
