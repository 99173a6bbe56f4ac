"""Many machines through Ray: what is sent to a node, how work is divided, and how a run comes back file by file."""
