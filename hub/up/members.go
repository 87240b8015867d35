package up

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"

	"filippo.io/age"

	"isolane.dev/isolane/hub/desired"
)

// Several hubs act as one: their stores are the members of one store, each hub has an API server, and one of
// them runs the controllers.

// membersFile has what one of several hubs knows about the others before its store runs. A hub without that
// file is alone.
const membersFile = "members.json"

// members names hubs by the addresses at which sites reach them, ADDRESS:PORT.
type members struct {
	Self   string   `json:"self"`
	Others []string `json:"others,omitempty"` // as of the invitation of this hub
}

// Member is one of several hubs.
type Member struct {
	Name    string // ADDRESS:PORT at which sites reach it
	Learner bool   // its store has no vote: it has not begun, or still lacks data
	id      string
}

func (o Options) name() string { return net.JoinHostPort(o.Host, strconv.Itoa(o.Port)) }

// peerURL returns the URL at which the other stores reach the store of a hub. memberOf is its inverse.
func peerURL(name string) (string, error) {
	host, port, err := net.SplitHostPort(name)
	n, perr := strconv.Atoi(port)
	if err = errors.Join(err, perr); err != nil || host == "" {
		return "", fmt.Errorf("expected a hub as ADDRESS:PORT, found %q", name)
	}
	return "https://" + net.JoinHostPort(host, strconv.Itoa(n+2)), nil
}

func memberOf(peer string) (string, error) {
	u, err := url.Parse(peer)
	if err != nil {
		return "", err
	}
	port, err := strconv.Atoi(u.Port())
	return net.JoinHostPort(u.Hostname(), strconv.Itoa(port-2)), err
}

// cluster reads what is known about other hubs; nil: this hub is alone.
func (o Options) cluster() (*members, error) {
	data, err := os.ReadFile(o.file(membersFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	var m members
	if err == nil {
		err = json.Unmarshal(data, &m)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", o.file(membersFile), err)
	}
	if m.Self != o.name() {
		return nil, fmt.Errorf("--address, --port: the other hubs know this one as %s, found %s", m.Self, o.name())
	}
	return &m, nil
}

// share makes this hub one of several, if its options say so.
func (o Options) share() error {
	m, err := o.cluster()
	if err != nil || m != nil || !o.Shared {
		return err
	}
	data, err := json.Marshal(members{Self: o.name()})
	if err != nil {
		return err
	}
	return desired.WriteFile(o.file(membersFile), data)
}

// peers returns the flags that tell etcd where its members are, and how many entries of its log it keeps in
// memory for them. Each entry is as large as a report.
func (o Options) peers() ([]string, error) {
	m, err := o.cluster()
	if err != nil {
		return nil, err
	}
	if m == nil {
		own := fmt.Sprintf("https://127.0.0.1:%d", o.Port+2)
		return []string{"--name=hub", "--listen-peer-urls=" + own, "--initial-advertise-peer-urls=" + own,
			"--initial-cluster=hub=" + own, "--snapshot-count=200", "--snapshot-catchup-entries=100"}, nil
	}
	var all []string
	for _, name := range append(slices.Clone(m.Others), m.Self) {
		peer, perr := peerURL(name)
		all, err = append(all, name+"="+peer), errors.Join(err, perr)
	}
	own, perr := peerURL(m.Self)
	state := "new"
	if len(m.Others) > 0 {
		state = "existing"
	}
	// Members prove themselves by certificates of the store's authority, whatever their address.
	return []string{"--name=" + m.Self, fmt.Sprintf("--listen-peer-urls=https://%s",
		net.JoinHostPort(o.everywhere(), strconv.Itoa(o.Port+2))), "--initial-advertise-peer-urls=" + own,
		"--initial-cluster=" + strings.Join(all, ","), "--initial-cluster-state=" + state,
		"--snapshot-count=1000", "--snapshot-catchup-entries=500", // for a member that is some seconds behind
		"--peer-skip-client-san-verification"}, errors.Join(err, perr)
}

// ask sends the store of this hub a question about its members.
func (o Options) ask(ctx context.Context, what string, question, answer any) error {
	said, err := o.post(ctx, "cluster/member/"+what, question)
	if err != nil {
		return err
	}
	defer said.Close()
	return json.NewDecoder(said).Decode(answer)
}

// Members returns all hubs, with this one, and the store's own id of this one.
func (o Options) Members(ctx context.Context) (all []Member, own string, err error) {
	var said struct {
		Header struct {
			MemberID string `json:"member_id"`
		}
		Members []struct {
			ID        string
			PeerURLs  []string
			IsLearner bool
		}
	}
	if err = o.ask(ctx, "list", struct{}{}, &said); err != nil {
		return nil, "", err
	}
	for _, m := range said.Members {
		one := Member{Learner: m.IsLearner, id: m.ID}
		for _, peer := range m.PeerURLs {
			name, nerr := memberOf(peer)
			one.Name, err = name, errors.Join(err, nerr)
		}
		all = append(all, one)
	}
	return all, said.Header.MemberID, err
}

// Tend promotes the stores that have caught up with this one to voting members, and returns all hubs.
func (o Options) Tend(ctx context.Context) ([]Member, error) {
	if m, err := o.cluster(); err != nil || m == nil {
		return []Member{{Name: o.name()}}, err
	}
	all, own, err := o.Members(ctx)
	for _, m := range all {
		switch {
		case m.id == own && m.Name != o.name(): // it was alone, with its store on loopback
			peer, perr := peerURL(o.name())
			if err = errors.Join(err, perr); err == nil {
				err = o.ask(ctx, "update", map[string]any{"ID": m.id, "peerURLs": []string{peer}}, &struct{}{})
			}
		case m.Learner: // refused until it has caught up
			_ = o.ask(ctx, "promote", map[string]any{"ID": m.id}, &struct{}{})
		}
	}
	return all, err
}

// Remove removes a hub from the others: its store loses its vote.
func (o Options) Remove(ctx context.Context, name string) error {
	all, own, err := o.Members(ctx)
	if err != nil {
		return err
	}
	n := slices.IndexFunc(all, func(m Member) bool { return m.Name == name })
	if n < 0 {
		return fmt.Errorf("--remove %s: expected one of those that isolane-hub members lists", name)
	}
	if all[n].id == own {
		return fmt.Errorf("%s is this hub: expected that it is removed at another one", name)
	}
	return o.ask(ctx, "remove", map[string]any{"ID": all[n].id}, &struct{}{})
}

// Invite makes another hub known to the others, and writes what it needs to become one. Whoever has the file
// and one of its identities can be the hub.
func (o Options) Invite(ctx context.Context, w io.Writer, name string, to ...age.Recipient) error {
	peer, err := peerURL(name)
	if err != nil {
		return err
	}
	if is, cerr := o.cluster(); cerr != nil || is == nil {
		return errors.Join(errors.New("this hub is alone: expected one that was started with --shared"), cerr)
	}
	_, err = o.Tend(ctx) // it may have been alone until now
	all, _, merr := o.Members(ctx)
	if err = errors.Join(err, merr); err != nil {
		return err
	}
	m := members{Self: name}
	for _, is := range all {
		if is.Learner {
			return fmt.Errorf("%s is invited already: expected that it runs first, or that it is removed", is.Name)
		}
		if m.Others = append(m.Others, is.Name); is.Name == name {
			return fmt.Errorf("%s is one of the hubs: expected that it is removed first", name)
		}
	}
	data, err := json.Marshal(m)
	files, ferr := o.authorities()
	if err = errors.Join(err, ferr); err == nil {
		err = seal(w, append(files, content{membersFile, bytes.NewReader(data), int64(len(data))}), to...)
	}
	if err != nil {
		return err
	}
	err = o.ask(ctx, "add", map[string]any{"peerURLs": []string{peer}, "isLearner": true}, &struct{}{})
	if err != nil {
		return fmt.Errorf("expected that all hubs have run for some seconds, or that one is removed: %w", err)
	}
	return nil
}

// Accept makes the folder of a hub from what Invite has written.
func (o Options) Accept(r io.Reader, with ...age.Identity) error {
	return o.make(r, append(kept(), membersFile), func(string) error { return nil }, with...)
}
