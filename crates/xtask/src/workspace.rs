//! The workspace as cargo sees it.

use serde::Deserialize;

use crate::child::Child;
use crate::steps::Failure;

/// The parts of `cargo metadata` that the commands use.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Workspace {
    pub(crate) packages: Vec<Package>,
    pub(crate) target_directory: String,
}

#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Package {
    pub(crate) name: String,
    #[serde(default)]
    pub(crate) dependencies: Vec<Dependency>,
    #[serde(default)]
    pub(crate) targets: Vec<Target>,
}

#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Dependency {
    pub(crate) name: String,
    /// `None` for an ordinary one, else `dev` or `build`.
    pub(crate) kind: Option<String>,
    /// Set for a path, so for crates of this workspace.
    #[serde(default)]
    pub(crate) path: Option<String>,
}

#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Target {
    pub(crate) name: String,
    pub(crate) kind: Vec<String>,
    #[serde(default, rename = "required-features")]
    pub(crate) required_features: Vec<String>,
}

impl Workspace {
    /// Asks cargo, without resolving dependencies.
    pub(crate) fn read() -> Result<Workspace, Failure> {
        let json = Child::cargo("metadata --no-deps --format-version 1").read()?;
        Workspace::parse(&json)
    }

    pub(crate) fn parse(json: &[u8]) -> Result<Workspace, Failure> {
        serde_json::from_slice(json)
            .map_err(|e| Failure::new(format!("cargo metadata is not understood: {e}")))
    }

    pub(crate) fn package(&self, name: &str) -> Option<&Package> {
        self.packages.iter().find(|package| package.name == name)
    }
}

impl Package {
    /// Whether it has a library, and so can have doctests.
    pub(crate) fn has_library(&self) -> bool {
        self.targets
            .iter()
            .any(|target| target.kind.iter().any(|kind| kind == "lib" || kind == "rlib"))
    }

    pub(crate) fn examples(&self) -> impl Iterator<Item = &Target> {
        self.targets.iter().filter(|target| target.kind.iter().any(|kind| kind == "example"))
    }
}
