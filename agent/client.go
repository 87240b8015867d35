package agent

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"

	"isolane.dev/isolane/enforce"
	"isolane.dev/isolane/lane"
	"isolane.dev/isolane/lanes"
	"isolane.dev/isolane/plan"
)

// ErrNone means that no agent answers at a socket, or that this user may not connect to it.
var ErrNone = errors.New("no agent answers")

// AnswerError says why an agent did not do what it was asked to do.
type AnswerError struct {
	Status int // an HTTP status, as listed in docs/agent.md
	Text   string
}

func (e *AnswerError) Error() string { return e.Text }

// IsUsage reports whether the request itself was wrong.
func (e *AnswerError) IsUsage() bool {
	return e.Status == http.StatusBadRequest || e.Status == http.StatusNotFound ||
		e.Status == http.StatusRequestEntityTooLarge
}

// versionHeader is the HTTP header of answers with the agent's version.
const versionHeader = "Isolane-Version"

// Client asks the agent at a socket to do what its own user may not do. If the agent refuses, the error is a
// *plan.Refusal or an *AnswerError.
type Client struct {
	Socket string
	None   error // the error if no agent answers; nil: ErrNone
	// Out receives a note if the agent that answers is not of this version.
	Version string
	Out     io.Writer // nil: nobody is told
}

// Status returns the lanes in force.
func (c Client) Status(ctx context.Context) (s enforce.Status, err error) {
	err = c.ask(ctx, http.MethodGet, "/v1/status", nil, &s)
	return s, err
}

// Plan returns where lanes would go beside those in force.
func (c Client) Plan(ctx context.Context, want []lane.Lane) (p plan.Placement, err error) {
	err = c.ask(ctx, http.MethodPost, "/v1/plan", want, &p)
	return p, err
}

// Apply has lanes put in force. With prune, all others are released.
func (c Client) Apply(ctx context.Context, want []lane.Lane, prune bool) (a lanes.Applied, err error) {
	err = c.ask(ctx, http.MethodPost, "/v1/apply?prune="+strconv.FormatBool(prune), want, &a)
	return a, plan.At(err, want)
}

// ApplyFiles is Apply for the lanes of files, as lane.ReadAll reads them. If no agent answers, that comes
// before what is wrong with the files.
func (c Client) ApplyFiles(ctx context.Context, files []string, stdin io.Reader, prune bool) (a lanes.Applied,
	err error) {
	want, wrong := lane.ReadAll(files, stdin)
	if wrong == nil {
		return c.Apply(ctx, want, prune)
	}
	if _, err = c.Status(ctx); !errors.Is(err, cmp.Or(c.None, ErrNone)) {
		err = wrong
	}
	return a, err
}

// Release has the lanes of these names released, or all lanes.
func (c Client) Release(ctx context.Context, names []string, all bool) (r lanes.Released, err error) {
	query := url.Values{"lane": names}
	if all {
		query = url.Values{"all": {"true"}}
	}
	err = c.ask(ctx, http.MethodPost, "/v1/release?"+query.Encode(), nil, &r)
	return r, err
}

// ask sends a request of Routes with lanes as its body, and decodes the answer into document.
func (c Client) ask(ctx context.Context, method, target string, body []lane.Lane, document any) error {
	var text bytes.Buffer
	for _, l := range body { // JSON is valid YAML
		one, merr := json.Marshal(l)
		if merr != nil {
			return merr
		}
		fmt.Fprintf(&text, "---\n%s\n", one)
	}
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", c.Socket)
	}
	by := http.Client{Transport: &http.Transport{DialContext: dial, DisableKeepAlives: true}}
	request, err := http.NewRequestWithContext(ctx, method, "http://agent"+target, &text)
	if err != nil {
		return err
	}
	r, err := by.Do(request)
	if op, is := errors.AsType[*net.OpError](err); is && op.Op == "dial" {
		return cmp.Or(c.None, ErrNone)
	}
	if err != nil {
		return err
	}
	defer r.Body.Close()
	if theirs := r.Header.Get(versionHeader); c.Out != nil && theirs != c.Version {
		fmt.Fprintf(c.Out, "note: the agent is isolane %s, this command is isolane %s: install one version, and "+
			"systemctl restart isolane-agent\n", theirs, c.Version)
	}
	answer, err := io.ReadAll(r.Body)
	if err != nil {
		return fmt.Errorf("%s: %w", c.Socket, err)
	}
	if r.StatusCode == http.StatusOK {
		return decode(c.Socket, answer, document)
	}
	var failure Failure
	if err = decode(c.Socket, answer, &failure); err != nil {
		return err
	}
	if failure.Kind != "Refusal" {
		return &AnswerError{r.StatusCode, failure.Error}
	}
	var refusal plan.Refusal
	if err = decode(c.Socket, answer, &refusal); err == nil {
		err = &refusal
	}
	return err
}

func decode(socket string, answer []byte, document any) error {
	if err := json.Unmarshal(answer, document); err != nil {
		return fmt.Errorf("%s: expected an answer of isolane agent: %w", socket, err)
	}
	return nil
}
