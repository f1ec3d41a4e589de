// Orders gives each order the customer who made it, as that customer was then, and sets big
// orders apart. Customers are a table that is read from a topic of their changes; orders are
// keyed by their number and shuffled to where their customer is. README.md explains it.
//
//	go run ./examples/orders -dir run/orders
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/thalweg/thalweg"
	"github.com/thalweg/thalweg/stream"
	"github.com/thalweg/thalweg/topic"
)

// CustomerID is a customer's number.
type CustomerID int64

// Customer is a row of the table of customers.
type Customer struct {
	Name, City string
}

// Order is an order as it comes in.
type Order struct {
	ID       string
	Customer CustomerID
	Cents    int64
}

// By is who made the order.
func (o Order) By() CustomerID { return o.Customer }

// Enriched is an order with its customer. Known is false where there is none.
type Enriched struct {
	Order    Order
	Customer Customer
	Known    bool
}

// Big tells whether somebody should look at the order.
func (e Enriched) Big() bool { return e.Order.Cents >= 100_000 }

func enrich(o Order, c Customer, known bool) Enriched { return Enriched{o, c, known} }

// The topics. Orders and customers have different numbers of partitions, since orders are
// shuffled anyway.
var (
	orders    = topic.New[string, Order]("orders").Partitions(3)
	customers = topic.New[CustomerID, Customer]("customers").Partitions(2)
	enriched  = topic.New[CustomerID, Enriched]("enriched")
	big       = topic.New[CustomerID, Enriched]("big")
)

func enrichOrders() *stream.Topology {
	app := stream.New("orders")
	large, small := app.Stream(orders).
		KeyBy(Order.By).
		LeftJoinTable(app.Table(customers), enrich).As("with-customer").
		Split(Enriched.Big)
	large.To(big)
	small.To(enriched)
	return app
}

func main() {
	dir := flag.String("dir", "run/orders", "the node's `directory`, to be empty or missing")
	flag.Parse()
	if err := run(context.Background(), *dir, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "orders:", err)
		os.Exit(1)
	}
}

// run sends customers, their changes and orders, and prints what comes out.
func run(ctx context.Context, dir string, out io.Writer) (err error) {
	node, err := thalweg.Open(dir)
	if err != nil {
		return err
	}
	defer func() {
		if closed := node.Close(); err == nil {
			err = closed
		}
	}()
	if err := send(ctx, node); err != nil {
		return err
	}
	if err := node.Run(ctx, enrichOrders().StopAt(topic.End())); err != nil {
		return err
	}
	for _, t := range []topic.Topic[CustomerID, Enriched]{enriched, big} {
		for r, err := range node.ReadToEnd(ctx, t, topic.Start()) {
			if err != nil {
				return err
			}
			who := "nobody we know"
			if e := r.Value; e.Known {
				who = fmt.Sprintf("%s, %s", e.Customer.Name, e.Customer.City)
			}
			if _, err := fmt.Fprintf(out, "%-8s  %s  %7.2f  %s\n", t.Name(), r.Value.Order.ID, float64(r.Value.Order.Cents)/100, who); err != nil {
				return err
			}
		}
	}
	return nil
}

// minute is a time of the day on which all of this happens.
func minute(n int) time.Time { return time.Date(2026, time.March, 2, 9, n, 0, 0, time.UTC) }

// send writes what happens between nine and half past.
func send(ctx context.Context, node *thalweg.Node) error {
	return node.Transact(ctx, func(tx *topic.Tx) error {
		for _, c := range []struct {
			at int
			id CustomerID
			Customer
		}{
			{0, 1, Customer{"Ines", "Lisbon"}},
			{0, 2, Customer{"Omar", "Cairo"}},
			{15, 1, Customer{"Ines", "Porto"}}, // she moves
		} {
			r := topic.Record[CustomerID, Customer]{Key: c.id, Value: c.Customer, Time: minute(c.at)}
			if err := tx.SendRecord(customers, r); err != nil {
				return err
			}
		}
		gone := topic.Record[CustomerID, Customer]{Key: 2, Deleted: true, Time: minute(25)}
		if err := tx.SendRecord(customers, gone); err != nil {
			return err
		}
		for _, o := range []struct {
			at int
			Order
		}{
			{5, Order{"order-1", 1, 2_500}},
			{10, Order{"order-2", 2, 150_000}},
			{20, Order{"order-3", 1, 120_000}},
			{22, Order{"order-4", 7, 990}},
			{28, Order{"order-5", 2, 4_200}},
		} {
			r := topic.Record[string, Order]{Key: o.ID, Value: o.Order, Time: minute(o.at)}
			if err := tx.SendRecord(orders, r); err != nil {
				return err
			}
		}
		return nil
	})
}
