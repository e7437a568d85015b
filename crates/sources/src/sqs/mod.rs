//! AWS SQS, standard and FIFO.
