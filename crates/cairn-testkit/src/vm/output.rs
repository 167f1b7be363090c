//! The result of a run of a machine: its exit status and its output.

/// The output of a machine.
#[derive(Clone, Debug)]
pub struct Output {
    /// The script's exit status; `None` if it did not end.
    pub status: Option<i32>,
    /// The script's output, on both streams.
    pub text: String,
    /// The kernel's output.
    pub console: String,
}

impl Output {
    /// Everything, for a failed assertion.
    #[must_use]
    pub fn describe(&self) -> String {
        let status =
            self.status.map_or("did not end".to_owned(), |status| format!("exited with {status}"));
        format!(
            "the script {status}\n--- script ---\n{}\n--- kernel ---\n{}",
            self.text, self.console
        )
    }
}
