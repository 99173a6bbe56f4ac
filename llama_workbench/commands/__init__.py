"""The `workbench` command: one file a verb. `app` lists the verbs, `shared` holds what several of them need."""
