//! One projection, a tuple or a list of them, as one thing with states of their own types.

use std::sync::Arc;

use super::Projection;
use super::slot::{Kept, Slot};

/// What can be projected together: a [`Projection`], a tuple of up to eight, or a list of one type. The states come back in
/// the same shape.
pub trait Projections: Send + 'static {
    /// The states: one, a tuple, a list.
    type States: Send + 'static;
    /// The projections with their states.
    #[doc(hidden)]
    type Running: Running<States = Self::States>;
    /// All of them at their starts.
    #[doc(hidden)]
    fn begin(self) -> Self::Running;
}

/// Projections with the states they have reached.
pub trait Running: Send + Sync + 'static {
    /// The states: one, a tuple, a list.
    type States;

    /// Adds each of them, in order.
    fn slots(&self, all: &mut Vec<Arc<dyn Slot>>);

    /// The states. What stays are the first ones.
    fn take(&self) -> Self::States;

    /// Goes on with these.
    fn put(&self, states: Self::States);
}

impl<P: Projection> Projections for P {
    type States = P::State;
    type Running = Arc<Kept<P>>;

    fn begin(self) -> Arc<Kept<P>> {
        Kept::new(self)
    }
}

impl<P: Projection> Running for Arc<Kept<P>> {
    type States = P::State;

    fn slots(&self, all: &mut Vec<Arc<dyn Slot>>) {
        let slot: Arc<Kept<P>> = Self::clone(self);
        all.push(slot);
    }

    fn take(&self) -> P::State {
        Kept::take(self)
    }

    fn put(&self, state: P::State) {
        Kept::put(self, state);
    }
}

impl<P: Projection> Projections for Vec<P> {
    type States = Vec<P::State>;
    type Running = Vec<Arc<Kept<P>>>;

    fn begin(self) -> Self::Running {
        self.into_iter().map(Kept::new).collect()
    }
}

impl<P: Projection> Running for Vec<Arc<Kept<P>>> {
    type States = Vec<P::State>;

    fn slots(&self, all: &mut Vec<Arc<dyn Slot>>) {
        self.iter().for_each(|kept| kept.slots(all));
    }

    fn take(&self) -> Vec<P::State> {
        self.iter().map(|kept| kept.take()).collect()
    }

    fn put(&self, states: Vec<P::State>) {
        self.iter().zip(states).for_each(|(kept, state)| kept.put(state));
    }
}

macro_rules! tuples {
    ($(($($name:ident $index:tt),+))+) => {$(
        impl<$($name: Projection),+> Projections for ($($name,)+) {
            type States = ($($name::State,)+);
            type Running = ($(Arc<Kept<$name>>,)+);

            fn begin(self) -> Self::Running {
                ($(Kept::new(self.$index),)+)
            }
        }

        impl<$($name: Projection),+> Running for ($(Arc<Kept<$name>>,)+) {
            type States = ($($name::State,)+);

            fn slots(&self, all: &mut Vec<Arc<dyn Slot>>) {
                $(self.$index.slots(all);)+
            }

            fn take(&self) -> Self::States {
                ($(Kept::take(&self.$index),)+)
            }

            fn put(&self, states: Self::States) {
                $(Kept::put(&self.$index, states.$index);)+
            }
        }
    )+};
}

tuples! {
    (A 0)
    (A 0, B 1)
    (A 0, B 1, C 2)
    (A 0, B 1, C 2, D 3)
    (A 0, B 1, C 2, D 3, E 4)
    (A 0, B 1, C 2, D 3, E 4, F 5)
    (A 0, B 1, C 2, D 3, E 4, F 5, G 6)
    (A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7)
}
