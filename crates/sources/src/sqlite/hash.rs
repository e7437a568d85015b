//! Maps and sets by the numbers of messages, lanes and pools, and by keys: each message is looked up many times.

use std::collections::{HashMap, HashSet};

use foldhash::fast::RandomState;

pub(crate) type Map<K, V> = HashMap<K, V, RandomState>;
pub(crate) type Set<K> = HashSet<K, RandomState>;
