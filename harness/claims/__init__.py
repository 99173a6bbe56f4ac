"""The claims of `claims/*.toml`: models and reading."""
