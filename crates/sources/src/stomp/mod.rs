//! ActiveMQ Classic, over STOMP 1.2.
