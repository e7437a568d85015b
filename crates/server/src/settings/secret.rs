//! Values that must not be shown: tokens and signing keys.

use std::fmt;

use base64::Engine as _;
use base64::alphabet::STANDARD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};

/// What stands wherever a secret would.
pub(super) const MASK: &str = "***";

/// A text that is used but never shown: `Debug` and `Display` print `***`.
///
/// ```
/// use sluicegate_server::settings::Secret;
///
/// let token = Secret::new("tiger");
/// assert_eq!(format!("{token} {token:?}"), "*** ***");
/// assert_eq!(token.expose(), "tiger");
/// ```
///
/// Two of them are compared to see whether a setting changed. To check what a caller offers, use a
/// comparison that takes the same time wherever the texts differ.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// Takes a text out of sight.
    #[must_use]
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// The text itself.
    #[must_use]
    pub fn expose(&self) -> &str {
        &self.0
    }
}

/// The key with which a pool signs its calls (Standard Webhooks).
#[derive(Clone, PartialEq, Eq)]
pub struct SigningSecret(Vec<u8>);

impl SigningSecret {
    const PREFIX: &str = "whsec_";
    const LEAST_BYTES: usize = 24;
    const MOST_BYTES: usize = 64;

    /// Reads `whsec_` and base64, or base64 alone, of 24 to 64 bytes.
    ///
    /// # Errors
    ///
    /// Says what is wrong without showing the text.
    pub fn parse(text: &str) -> Result<Self, SigningSecretInvalid> {
        let padding = DecodePaddingMode::Indifferent;
        let config = GeneralPurposeConfig::new().with_decode_padding_mode(padding);
        let encoded = text.strip_prefix(Self::PREFIX).unwrap_or(text);
        let key = GeneralPurpose::new(&STANDARD, config)
            .decode(encoded)
            .map_err(|_| SigningSecretInvalid::NotBase64)?;
        if (Self::LEAST_BYTES..=Self::MOST_BYTES).contains(&key.len()) {
            Ok(Self(key))
        } else {
            Err(SigningSecretInvalid::Length { bytes: key.len() })
        }
    }

    /// The decoded key.
    #[must_use]
    pub fn key(&self) -> &[u8] {
        &self.0
    }
}

/// Why a text is no signing secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SigningSecretInvalid {
    /// What follows the prefix is not base64.
    NotBase64,
    /// The key is too short to be safe, or longer than the standard allows.
    Length {
        /// How long it is.
        bytes: usize,
    },
}

impl fmt::Display for SigningSecretInvalid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotBase64 => write!(f, "must be base64, with or without `whsec_` before it"),
            Self::Length { bytes } => {
                let (least, most) = (SigningSecret::LEAST_BYTES, SigningSecret::MOST_BYTES);
                write!(f, "must decode to {least} to {most} bytes, not {bytes}")
            }
        }
    }
}

impl std::error::Error for SigningSecretInvalid {}

macro_rules! masked {
    ($($secret:ty),+) => {$(
        impl fmt::Debug for $secret {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(MASK)
            }
        }

        impl fmt::Display for $secret {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(MASK)
            }
        }
    )+};
}

masked!(Secret, SigningSecret);
