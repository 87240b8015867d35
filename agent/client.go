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

// ErrNone is that no agent answers at a socket, or that this user may not connect to it.
var ErrNone = errors.New("no agent answers")

// AnswerError is why an agent has not done what it was asked for.
type AnswerError struct {
	Status int // of HTTP, as docs/agent.md has them
	Text   string
}

func (e *AnswerError) Error() string { return e.Text }

// versionHeader is the answer's header with the version of the agent.
const versionHeader = "Isolane-Version"

// Client asks the agent at a socket to do what its user may not do himself. Where the agent refuses the error
// is a *plan.Refusal or an *AnswerError.
type Client struct {
	Socket string
	None   error                // is the error where no agent answers; nil: ErrNone
	Heard  func(version string) // if not nil, is told the version of an agent that answers
}

// Status asks for the lanes in force.
func (c Client) Status(ctx context.Context) (s enforce.Status, err error) {
	err = c.ask(ctx, http.MethodGet, "/v1/status", nil, &s)
	return s, err
}

// Plan asks where lanes would go beside those in force.
func (c Client) Plan(ctx context.Context, want []lane.Lane) (p plan.Placement, err error) {
	err = c.ask(ctx, http.MethodPost, "/v1/plan", want, &p)
	return p, err
}

// Apply has lanes put in force; with prune others are released.
func (c Client) Apply(ctx context.Context, want []lane.Lane, prune bool) (a lanes.Applied, err error) {
	err = c.ask(ctx, http.MethodPost, "/v1/apply?prune="+strconv.FormatBool(prune), want, &a)
	return a, plan.At(err, want)
}

// Release has the lanes of these names released, or all.
func (c Client) Release(ctx context.Context, names []string, all bool) (r lanes.Released, err error) {
	query := url.Values{"lane": names}
	if all {
		query = url.Values{"all": {"true"}}
	}
	err = c.ask(ctx, http.MethodPost, "/v1/release?"+query.Encode(), nil, &r)
	return r, err
}

// ask sends a request of Routes with lanes in its body, and reads the answer into the document.
func (c Client) ask(ctx context.Context, method, target string, body []lane.Lane, document any) error {
	var text bytes.Buffer
	for _, l := range body { // JSON is YAML
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
	if c.Heard != nil {
		c.Heard(r.Header.Get(versionHeader))
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
