//! The front, step by step in made-up time.
