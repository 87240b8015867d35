package enforce

import (
	"context"
	"errors"
	"io/fs"

	"isolane.dev/isolane/change"
	"isolane.dev/isolane/journal"
)

// Adopted is what adopt.Lanes did about one thing.
type Adopted struct {
	Name    string  `json:"name"`
	Subject Subject `json:"subject,omitempty"` // of the setting that is set or kept
	IRQ     *int    `json:"irq,omitempty"`     // the number, if it is an interrupt
	Kind    string  `json:"kind"`              // Set, Removed, Kept or Unknown
	From    string  `json:"from,omitempty"`
	To      string  `json:"to,omitempty"`
	Note    string  `json:"note,omitempty"` // why it is kept, or what is unknown
}

// Kinds of Adopted.
const (
	Set     = "set"     // to the kernel's default
	Removed = "removed" // a cgroup was removed
	Kept    = "kept"    // the kernel did not take the default
	Unknown = "unknown" // only the administrator knows what it was before
)

// SetForGood does a step without recording it and returns the result, or nil if there was nothing to do.
// A refusal by the kernel is no error.
func (l *Lanes) SetForGood(ctx context.Context, s journal.Step) (*Adopted, error) {
	before, err := l.journal.Set(ctx, s)
	did := Adopted{Name: l.ops.name(s), Kind: Set, From: firstLine(before), To: s.After}
	did.Subject, did.IRQ = subjectOf(s)
	switch {
	case errors.Is(err, fs.ErrNotExist) || err == nil && did.From == did.To: // ended, or set already
		return nil, ctx.Err()
	case err != nil && ctx.Err() != nil:
		return nil, ctx.Err()
	case err != nil:
		did.Kind, did.To, did.Note = Kept, "", err.Error()
	case s.Kind == change.KindCgroup:
		did = Adopted{Name: did.Name, Kind: Removed}
	}
	return &did, ctx.Err()
}
