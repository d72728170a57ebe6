SELECT sum(amount) FROM orders
