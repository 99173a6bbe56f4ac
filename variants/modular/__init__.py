"""The layered code: one file per concern, policies plugged in where a model is put together (`model.build`)."""
