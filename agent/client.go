package agent

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"

	"isolane.dev/isolane/lane"
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

// Ask sends the agent at a socket a request of Routes with lanes in its body, and reads its answer into the
// document. It returns the version of the agent also where that refuses: by a *plan.Refusal, or an
// *AnswerError. Where there is no agent the error is ErrNone.
func Ask(ctx context.Context, socket, method, target string, body []lane.Lane, document any) (version string,
	err error) {
	var text bytes.Buffer
	for _, l := range body { // JSON is YAML
		one, merr := json.Marshal(l)
		if merr != nil {
			return "", merr
		}
		fmt.Fprintf(&text, "---\n%s\n", one)
	}
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", socket)
	}
	c := http.Client{Transport: &http.Transport{DialContext: dial, DisableKeepAlives: true}}
	request, err := http.NewRequestWithContext(ctx, method, "http://agent"+target, &text)
	if err != nil {
		return "", err
	}
	r, err := c.Do(request)
	if op, is := errors.AsType[*net.OpError](err); is && op.Op == "dial" {
		return "", ErrNone
	}
	if err != nil {
		return "", err
	}
	defer r.Body.Close()
	version = r.Header.Get(versionHeader)
	answer, err := io.ReadAll(r.Body)
	if err != nil {
		return version, fmt.Errorf("%s: %w", socket, err)
	}
	if r.StatusCode == http.StatusOK {
		return version, decode(socket, answer, document)
	}
	var failure Failure
	if err = decode(socket, answer, &failure); err != nil {
		return version, err
	}
	if failure.Kind != "Refusal" {
		return version, &AnswerError{r.StatusCode, failure.Error}
	}
	var refusal plan.Refusal
	if err = decode(socket, answer, &refusal); err == nil {
		err = &refusal
	}
	return version, err
}

func decode(socket string, answer []byte, document any) error {
	if err := json.Unmarshal(answer, document); err != nil {
		return fmt.Errorf("%s: expected an answer of isolane agent: %w", socket, err)
	}
	return nil
}
