package sriov

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"isolane.dev/isolane/change/netdev"
	"isolane.dev/isolane/journal"
	"isolane.dev/isolane/netpath"
)

// kindFunction gives a lane a virtual function. The target is CARD/NUMBER/NAMESPACE. The values are functions
// as JSON: as the lane has it, and as it was found.
const kindFunction = "vf"

// Ops returns the operations of the kinds.
func Ops() map[string]journal.Op {
	return map[string]journal.Op{kindPool: pool{}, kindFunction: functionOp{}, kindDriver: driverOp{},
		kindLimit: limitOp{}, kindVectors: vectorsOp{}}
}

// function is a virtual function in a lane, or as it was found.
type function struct {
	// Lane is the device in the lane, without a name if the workload drives the function; nil: as found.
	Lane *netdev.Peer `json:"lane,omitempty"`
	Name string       `json:"name,omitempty"` // of its device on the host, as found
	MAC  string       `json:"mac,omitempty"`  // of its device, as found
	MTU  int          `json:"mtu,omitempty"`  // of its device, as found
	// AllMulticast says whether its device got all multicast frames, as found; nil in older records.
	AllMulticast *bool    `json:"allMulticast,omitempty"`
	Settings     settings `json:"settings"`
}

// settings are the card's settings for a function (ip-link(8), vf).
type settings struct {
	MAC   string `json:"mac"`
	VLAN  int    `json:"vlan,omitempty"`
	QoS   int    `json:"qos,omitempty"`
	Proto int    `json:"proto,omitempty"` // of the tag; 0x8100 is 802.1Q
	Spoof bool   `json:"spoofCheck"`
	Trust bool   `json:"trust"`
	// State is that of the link: auto, enable or disable; "" for a lane and in older records: as it is.
	State string `json:"state,omitempty"`
	Rate  uint32 `json:"rate,omitempty"` // the most that it sends, in Mbit per second; 0: no limit
	// MinRate is what the card reserves for it, in Mbit per second; nil for a lane and in older records: as it
	// is.
	MinRate *uint32 `json:"minRate,omitempty"`
	// Limited leaves the rate to a step of its own, see kindLimit.
	Limited bool `json:"limited,omitempty"`
}

// over fills in what s leaves open with what the card has now. But it never lets MinRate exceed Rate, which
// cards refuse.
func (s settings) over(now settings) settings {
	if s.Limited {
		s.Rate, s.Limited = now.Rate, false
	}
	s.State = cmp.Or(s.State, now.State)
	if s.MinRate == nil || now.MinRate != nil && *s.MinRate == *now.MinRate {
		s.MinRate = now.MinRate // the same pointer, so that they compare equal
	}
	if s.Rate > 0 && s.MinRate != nil && *s.MinRate > s.Rate {
		s.MinRate = new(s.Rate)
	}
	return s
}

// String describes the settings in the words of ip-link(8).
func (s settings) String() string {
	word := map[bool]string{true: "on", false: "off"}
	tag := ""
	if s.Proto == unix.ETH_P_8021AD {
		tag = " proto 802.1ad"
	}
	text := fmt.Sprintf("mac %s vlan %d%s spoofchk %s trust %s", s.MAC, s.VLAN, tag, word[s.Spoof],
		word[s.Trust])
	if s.State != "" {
		text += " state " + s.State
	}
	if s.Rate > 0 {
		text += fmt.Sprint(" max_tx_rate ", s.Rate)
	}
	if s.MinRate != nil && *s.MinRate > 0 {
		text += fmt.Sprint(" min_tx_rate ", *s.MinRate)
	}
	return text
}

// target is what a step applies to.
type target struct {
	card   string
	number int
	netns  string
}

func (t target) String() string { return fmt.Sprintf("%s/%d/%s", t.card, t.number, t.netns) }

func parseTarget(text string) (t target, err error) {
	words := strings.Split(text, "/")
	if len(words) != 3 || !pciAddress.MatchString(words[0]) {
		return t, fmt.Errorf("%q: expected CARD/NUMBER/NAMESPACE", text)
	}
	t.card, t.netns = words[0], words[2]
	if t.number, err = strconv.Atoi(words[1]); err == nil {
		err = netdev.CheckName(t.netns)
	}
	return t, err
}

// mark returns the name of the lane's device on the host while it is on its way back.
func (t target) mark() string {
	return netpath.DeviceName("isls-", fmt.Sprintf("%s.%d", strings.TrimPrefix(t.netns, "isolane-"), t.number))
}

func parse(value string) (f function, err error) {
	if err = json.Unmarshal([]byte(value), &f); err != nil {
		err = fmt.Errorf("%q: expected a virtual function in JSON", value)
	}
	return f, err
}

// ofLane returns which of a step's values is that of the lane.
func ofLane(s journal.Step) (value string, f function, err error) {
	for _, value = range []string{s.After, s.Before} {
		if f, err = parse(value); err == nil && f.Lane != nil {
			return value, f, nil
		}
	}
	return "", f, fmt.Errorf("vf %s: expected a virtual function in a lane", s.Target)
}

// look returns the value of a step that is the lane's, and the function as it is now. The caller closes the
// handle of a.
func look(s journal.Step) (value string, f function, a at, err error) {
	if value, f, err = ofLane(s); err == nil {
		a, err = find(s.Target)
	}
	return value, f, a, err
}

type functionOp struct{}

func (functionOp) Check(s journal.Step) error {
	t, err := parseTarget(s.Target)
	if err != nil {
		return err
	}
	_, f, err := ofLane(s)
	if err == nil && f.Lane.Netns != t.netns {
		err = fmt.Errorf("vf %s: namespace %q", s.Target, f.Lane.Netns)
	}
	if err == nil && f.Lane.Name != "" {
		err = netdev.CheckDevice(f.Lane.Name)
	}
	return err
}

// Read treats a function as the lane's from its first change to the last: the card has the lane's MAC address
// for it, or its device is in the lane or on its way back, or the lane may change the address and has.
func (functionOp) Read(_ context.Context, s journal.Step) (string, error) {
	value, f, a, err := look(s)
	if err != nil {
		return "", err
	}
	defer a.h.Close()
	found, ferr := parse(s.Before)
	changed := f.Settings.Trust && a.Settings.Trust && ferr == nil && found.Settings.MAC != a.Settings.MAC
	if a.inLane || a.Settings.MAC == f.Settings.MAC || a.Name == a.mark() || changed {
		return value, nil
	}
	data, err := json.Marshal(a.function)
	return string(data), err
}

// InForce reports whether the lane has the function with all that belongs to it.
func (functionOp) InForce(_ context.Context, s journal.Step, now string) (bool, error) {
	if now != s.After {
		return false, nil
	}
	what, err := differs(s)
	return what == "", err
}

// differs says how a function differs from what the lane should have.
func differs(s journal.Step) (string, error) {
	_, f, a, err := look(s)
	if err != nil {
		return "", err
	}
	defer a.h.Close()
	var what []string
	if a.Settings != f.Settings.over(a.Settings) {
		what = append(what, a.Settings.String())
	}
	if f.Lane.Name == "" {
		return strings.Join(what, ", "), nil
	}
	if !a.inLane || a.Name != f.Lane.Name {
		return strings.Join(append(what, "no "+f.Lane.Name+" in "+a.netns), ", "), nil
	}
	reset, err := wasReset(a.address)
	if reset {
		what = append(what, "its card was reset, no frames pass")
	}
	more, derr := f.Lane.Differs()
	return strings.Join(append(what, more...), ", "), errors.Join(err, derr)
}

// Write gives the function to the lane, or restores it as it was found, even if the card was reset.
func (functionOp) Write(ctx context.Context, s journal.Step, value string) error {
	f, err := parse(value)
	if err != nil {
		return err
	}
	a, err := find(s.Target)
	if err != nil {
		return err
	}
	defer a.h.Close()
	if err = a.revive(ctx); err != nil {
		return err
	}
	if f.Lane == nil {
		if _, of, oerr := ofLane(s); oerr == nil && of.Settings.State == "" {
			f.Settings.State = "" // the lane has not set it
		}
		return a.putBack(ctx, f)
	}
	if a.inLane && s.Replaced != "" && s.Replaced != value { // made anew: no earlier address stays
		found, perr := parse(s.Before)
		if err = errors.Join(perr, a.putBack(ctx, found)); err != nil {
			return err
		}
	}
	return a.give(ctx, f)
}

// Name says which function it is.
func (functionOp) Name(s journal.Step) string {
	t, _ := parseTarget(s.Target)
	return fmt.Sprintf("virtual function %d of %s in %s", t.number, t.card, t.netns)
}

// Describe says what appears or disappears.
func (o functionOp) Describe(s journal.Step) (name, from, to string) {
	text := func(value string) string {
		f, err := parse(value)
		switch {
		case err != nil:
			return value
		case f.Lane == nil:
			return f.Settings.String()
		}
		if f.Lane.Name == "" {
			return f.Settings.String()
		}
		return f.Settings.String() + strings.TrimPrefix(netdev.Link{Peer: f.Lane}.String(), " address "+f.Lane.MAC)
	}
	t, _ := parseTarget(s.Target)
	return o.Name(s), text(s.Before), text(s.After) + card{address: t.card}.untested()
}

// DescribeDrift says what differs from what the lane should have.
func (o functionOp) DescribeDrift(s journal.Step) (expected, found string) {
	_, found, expected = o.Describe(s)
	what, err := differs(s)
	if err != nil {
		what = err.Error()
	}
	return expected, cmp.Or(what, found)
}

// Shell returns ip-link(8) commands, without those that set addresses.
func (functionOp) Shell(s journal.Step) string {
	t, err := parseTarget(s.Target)
	f, ferr := parse(s.After)
	if err != nil || ferr != nil {
		return ""
	}
	c, _ := cardOf(t.card)
	set := fmt.Sprintf("ip link set %s vf %d %s", cmp.Or(c.device, t.card), t.number, f.Settings)
	if f.Lane != nil && f.Lane.Name == "" {
		return set
	}
	if f.Lane == nil {
		return fmt.Sprintf("ip -n %s link set %s netns 1 && %s", t.netns, netpath.Device, set)
	}
	return fmt.Sprintf("%s && ip link set $(ls %s/net) netns %s name %s", set,
		c.file(fmt.Sprint("virtfn", t.number)), t.netns, f.Lane.Name)
}
