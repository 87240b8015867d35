// Command issuer is a provider of OpenID Connect for tests, made from a library, whose tokens name the groups
// of its users. It prints its address and its certificate.
package main

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"sync/atomic"
	"time"

	"github.com/zitadel/oidc/v3/example/server/exampleop"
	"github.com/zitadel/oidc/v3/example/server/storage"
	"github.com/zitadel/oidc/v3/pkg/oidc"
	"github.com/zitadel/oidc/v3/pkg/op"
)

// users maps names, which are the passwords too, to groups.
type users map[string][]string

func (u users) GetUserByID(id string) *storage.User {
	if _, is := u[id]; !is {
		return nil
	}
	return &storage.User{ID: id, Username: id, Password: id, Email: id + "@example.org", EmailVerified: true}
}
func (u users) GetUserByUsername(name string) *storage.User { return u.GetUserByID(name) }
func (u users) ExampleClientID() string                     { return "" }

// provider puts groups into tokens, and gives tokens the lifetime that a test wants.
type provider struct {
	*storage.Storage
	users users
	life  atomic.Int64
}

func (p *provider) SetUserinfoFromRequest(ctx context.Context, info *oidc.UserInfo, r op.IDTokenRequest, scopes []string) error {
	info.AppendClaims("groups", p.users[r.GetSubject()])
	return p.Storage.SetUserinfoFromRequest(ctx, info, r, scopes)
}

type client struct {
	op.Client
	life time.Duration
}

func (c client) IDTokenLifetime() time.Duration { return c.life }

func (p *provider) GetClientByClientID(ctx context.Context, id string) (op.Client, error) {
	c, err := p.Storage.GetClientByClientID(ctx, id)
	return client{c, time.Duration(p.life.Load())}, err
}

func main() {
	p := &provider{}
	if err := json.Unmarshal([]byte(os.Args[1]), &p.users); err != nil {
		panic(err)
	}
	p.life.Store(int64(time.Hour))
	for _, id := range os.Args[2:] {
		storage.RegisterClients(storage.WebClient(id, "secret", "http://127.0.0.1/callback"))
	}
	p.Storage = storage.NewStorage(p.users)
	server := httptest.NewUnstartedServer(nil)
	url := "https://" + server.Listener.Addr().String()
	mux := http.NewServeMux()
	mux.HandleFunc("/life", func(w http.ResponseWriter, r *http.Request) {
		if life, err := time.ParseDuration(r.FormValue("of")); err == nil {
			p.life.Store(int64(life))
		}
	})
	mux.Handle("/", exampleop.SetupServer(url, p, slog.New(slog.DiscardHandler), false))
	server.Config.Handler = mux
	server.StartTLS()
	authority := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	if err := json.NewEncoder(os.Stdout).Encode(map[string]string{"url": url, "authority": string(authority)}); err != nil {
		panic(err)
	}
	select {}
}
