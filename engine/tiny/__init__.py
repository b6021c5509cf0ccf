"""The built-in video model: its scenes, its training and its evaluation."""
