// Package session is the actor: one Session is one live activation of one
// Bridge, and owns that bridge's providers, catalog and pending calls.
//
// Everything a Session decides happens in a turn. Turns run one at a time, in
// the order in which their commands entered the mailbox, and never block: no
// disk, network, clock or lock that another party may hold. An idle Session
// holds no goroutine; whoever sends the first command runs the turns until the
// mailbox is empty.
//
// # Guarantees
//
//   - A Call that was accepted ends exactly once, through [state.end], with one
//     [Reason].
//   - Only the Instance that was asked may answer a Call. Anything else is
//     counted and dropped.
//   - A Call is handed to a socket at most once. While it was never handed to
//     one, it may be given to another Instance of the same Provider.
//   - The Catalog that readers see has been made durable first (see [Saver]).
//
// # What it does not do
//
// It does not speak any wire format: providers are attached through [Outbox],
// payloads are raw JSON that it never decodes, and time comes with the command.
// The package imports the standard library alone.
package session
