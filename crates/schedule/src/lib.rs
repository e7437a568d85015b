//! A pure work schedule.
