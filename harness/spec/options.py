"""Names of options that bring a user's code, for messages and for commands that go on."""

ADD, CALL, CHECK, COMPARE, ENV = "--add-variant", "--call", "--check", "--compare", "--env"
