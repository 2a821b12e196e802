"""What a site may declare: typed models and the loader whose errors name file and line."""
