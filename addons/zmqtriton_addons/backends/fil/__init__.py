"""The backend `fil`: forests of decision trees."""
