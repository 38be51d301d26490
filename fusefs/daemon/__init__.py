"""The mount: a session's view of the tree as a FUSE file system."""
