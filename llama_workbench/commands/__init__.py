"""The `workbench` command: its verbs. `app` lists the verbs, `shared` holds what several of them need."""
