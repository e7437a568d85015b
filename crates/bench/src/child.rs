//! This program once more, in a process of its own, for what must not be seen beside other things.

use std::path::PathBuf;
use std::process::{Command, Stdio};

/// Runs the words and reads the figures that they print.
pub(crate) fn figures<const N: usize>(words: &[String]) -> Result<[f64; N], String> {
    let me = std::env::current_exe().map_err(|error| format!("no path to myself: {error}"))?;
    read_figures(me, words)
}

/// The same of another program that is built beside this one.
pub(crate) fn figures_of<const N: usize>(
    program: &str,
    words: &[String],
) -> Result<[f64; N], String> {
    let me = std::env::current_exe().map_err(|error| format!("no path to myself: {error}"))?;
    read_figures(me.with_file_name(program), words)
}

fn read_figures<const N: usize>(program: PathBuf, words: &[String]) -> Result<[f64; N], String> {
    let ran = Command::new(program)
        .args(words)
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .map_err(|error| format!("{words:?} did not start: {error}"))?;
    let said = String::from_utf8_lossy(&ran.stdout);
    let figures: Vec<f64> = said.split_whitespace().filter_map(|word| word.parse().ok()).collect();
    match <[f64; N]>::try_from(figures) {
        Ok(figures) if ran.status.success() => Ok(figures),
        _ => Err(format!("{words:?} ended with {}: {said:?}", ran.status)),
    }
}

/// The number at a place among the words.
pub(crate) fn number(words: &[String], at: usize) -> Result<u64, String> {
    let number = words.get(at).and_then(|word| word.parse().ok());
    number.ok_or_else(|| format!("word {at} of {words:?} must be a number"))
}

/// The nanoseconds that the threads of a process have run.
pub(crate) fn cpu_time(process: &str) -> Result<f64, String> {
    let tasks = std::fs::read_dir(format!("/proc/{process}/task"));
    let run = tasks.map_err(|error| error.to_string())?.map(|thread| {
        let path = thread.ok()?.path().join("schedstat");
        let text = std::fs::read_to_string(path).ok()?;
        text.split_whitespace().next()?.parse::<f64>().ok()
    });
    // A thread that has ended meanwhile has no file any more.
    Ok(run.flatten().sum())
}
