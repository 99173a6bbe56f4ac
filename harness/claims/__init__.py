"""The claims of `claims/*.toml` and what is asked about them: models and reading."""
