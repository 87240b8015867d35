package history

import (
	"encoding/binary"
	"strings"
	"time"
)

// encode returns an event without its time and lane, which are in its key: texts after their lengths, then
// numbers, as varints. JSON of a month would take a second to read. Later versions add fields at the end.
func (e Event) encode() []byte {
	var who Who
	uid, cpu := -1, -1
	if e.Who != nil {
		who, uid = *e.Who, e.Who.UID
	}
	if e.CPU != nil {
		cpu = *e.CPU
	}
	var b []byte
	for _, text := range []string{e.Boot, string(e.Kind), e.What, e.By, e.Verdict, who.Login, who.Command} {
		b = binary.AppendVarint(b, int64(len(text)))
		b = append(b, text...)
	}
	for _, n := range []int64{int64(uid), int64(cpu), int64(e.Settings), e.Took} {
		b = binary.AppendVarint(b, n)
	}
	return b
}

// texts copies the texts of events into large pieces of memory: one allocation for each would take longer
// than all the rest.
type texts struct{ piece strings.Builder }

func (t *texts) copy(b []byte) string {
	if t.piece.Cap()-t.piece.Len() < len(b) {
		t.piece.Reset()
		t.piece.Grow(max(64<<10, len(b)))
	}
	at := t.piece.Len()
	t.piece.Write(b)
	return t.piece.String()[at:]
}

// decode returns the event of a key and of what encode has made.
func (t *texts) decode(k key, stored []byte) (e Event, err error) {
	f := fields{bytes: stored, same: t.copy(stored), whole: true}
	e = Event{At: time.Unix(0, int64(k.at)).UTC(), Lane: t.copy(k.lane), Boot: f.text(),
		Kind: Kind(f.text()), What: f.text(), By: f.text(), Verdict: f.text()}
	login, command := f.text(), f.text()
	if uid := int(f.number()); uid >= 0 {
		e.Who = &Who{uid, login, command}
	}
	if cpu := int(f.number()); cpu >= 0 {
		e.CPU = &cpu
	}
	e.Settings, e.Took = int(f.number()), f.number()
	if !f.whole {
		err = &DamagedError{Why: "an event is not whole"}
	}
	return e, err
}

// fields has the encoded fields of an event, as bytes and as text, and the offset of the next.
type fields struct {
	bytes []byte
	same  string
	at    int
	whole bool
}

func (f *fields) number() int64 {
	n, size := binary.Varint(f.bytes[f.at:])
	if size <= 0 {
		f.whole = false
		return 0
	}
	f.at += size
	return n
}

func (f *fields) text() string {
	n := f.number()
	if n < 0 || n > int64(len(f.same)-f.at) {
		f.whole = false
		return ""
	}
	f.at += int(n)
	return f.same[f.at-int(n) : f.at]
}
