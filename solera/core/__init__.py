"""What every part of Solera stands on; nothing here knows about learning."""
