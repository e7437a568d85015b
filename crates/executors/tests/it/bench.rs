//! How much an executor adds to a bare client.
