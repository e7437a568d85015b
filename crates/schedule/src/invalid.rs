//! A setting that cannot be used, and the field that is to blame.
//!
//! `docs/rules.md#count-2`.

use std::fmt;

/// A setting was refused. Nothing was changed.
///
/// ```
/// use sluicegate_schedule::{Limits, Fault};
///
/// let refused = Limits::new::<()>(0, 50).build().unwrap_err();
/// assert_eq!(refused.field, "concurrency");
/// assert_eq!(refused.fault, Fault::Zero);
/// assert_eq!(refused.to_string(), "concurrency: must be at least 1");
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Invalid {
    /// The name of the field, as the caller wrote it.
    pub field: &'static str,
    /// What is wrong with its value.
    pub fault: Fault,
}

/// What can be wrong with a value.
///
/// ```
/// use sluicegate_schedule::{Fault, Limits};
///
/// let refused = Limits::new::<&str>(1, 1).class_period(3).build().unwrap_err();
/// assert_eq!(refused.fault, Fault::TooSmall { min: 4 });
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fault {
    /// Zero, where nothing could ever run.
    Zero,
    /// Below the least value that works.
    TooSmall {
        /// That least value.
        min: u64,
    },
    /// Above the greatest value that works.
    TooLarge {
        /// That greatest value.
        max: u64,
    },
    /// Given before.
    Duplicate {
        /// The name that stands there twice.
        name: String,
    },
    /// Empty, where a name is needed.
    Empty,
}

impl Invalid {
    /// A refusal of `field`.
    ///
    /// ```
    /// use sluicegate_schedule::{Fault, Invalid};
    ///
    /// let refused = Invalid::new("name", Fault::Empty);
    /// assert_eq!(refused.to_string(), "name: must not be empty");
    /// ```
    #[must_use]
    pub const fn new(field: &'static str, fault: Fault) -> Self {
        Self { field, fault }
    }

    /// Refuses a value outside of `1..=max`.
    ///
    /// ```
    /// use sluicegate_schedule::{Fault, Invalid};
    ///
    /// assert_eq!(Invalid::check_count("workers", 8, 100), Ok(()));
    /// let refused = Invalid::check_count("workers", 101, 100).unwrap_err();
    /// assert_eq!(refused.fault, Fault::TooLarge { max: 100 });
    /// ```
    ///
    /// # Errors
    /// [`Fault::Zero`] or [`Fault::TooLarge`], naming `field`.
    pub const fn check_count(field: &'static str, value: u32, max: u32) -> Result<(), Self> {
        if value == 0 {
            Err(Self::new(field, Fault::Zero))
        } else if value > max {
            Err(Self::new(field, Fault::TooLarge { max: max as u64 }))
        } else {
            Ok(())
        }
    }
}

impl fmt::Display for Invalid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let field = self.field;
        match &self.fault {
            Fault::Zero => write!(f, "{field}: must be at least 1"),
            Fault::TooSmall { min } => write!(f, "{field}: must be at least {min}"),
            Fault::TooLarge { max } => write!(f, "{field}: must be at most {max}"),
            Fault::Duplicate { name } => write!(f, "{field}: {name:?} is given twice"),
            Fault::Empty => write!(f, "{field}: must not be empty"),
        }
    }
}

impl std::error::Error for Invalid {}
