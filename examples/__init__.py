"""Programs that use kici-scaler from outside."""
